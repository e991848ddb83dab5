// Package security shows what docs/security.md says: what roles with few rights
// can do and cannot, that nothing a user chooses becomes SQL, that notifications
// of strangers cost little, and that no password is shown.
package security
