//go:build !linux && !darwin

package doctor

func bootID() string { return "" }

func fileSystem(string) (name string, volatile bool) { return "", false }
