// Package doctor looks at a store and says what is wrong with it, what may
// become so, and what to do.
//
// Reading and judging are apart: [Read] and [ReadLocal] ask the server, the
// kernel and the file system and decide nothing; [Facts.Judge] and
// [LocalFacts.Judge] decide and do no I/O. Nothing is changed: the one thing
// that is sent to others is a notification on a channel that nobody else knows.
package doctor
