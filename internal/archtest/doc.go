// Package archtest holds the rules of the architecture as tests: who may import
// whom, what is exported, which versions the modules agree on, how long a file
// may be, and what a library keeps its hands off. Each rule has its reason beside
// it; a rule about something that no longer exists fails, so none outlives its
// subject.
//
// The rules read source files of every operating system and do not build them.
package archtest
