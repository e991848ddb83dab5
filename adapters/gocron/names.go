package gocron

import (
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
)

// closure matches the names that the runtime gives to functions without one.
var closure = regexp.MustCompile(`\.func\d+(\.\d+|\.func\d+|\.gowrap\d+|\[\.\.\.\])*$|-fm$|^glob\.\.func|\.glob\.\.func`)

// modules are the modules that this program was built from, as far as it knows:
// those of a name without a dot, like myapp, are told only by this.
var modules = sync.OnceValue(func() []string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	paths := []string{info.Main.Path}
	for _, m := range info.Deps {
		paths = append(paths, m.Path)
	}
	return slices.DeleteFunc(paths, func(p string) bool { return p == "" })
})

// isFunction tells whether a job's name is that of a function in this program,
// which is what gocron calls a job that was given none. A name of the user's may
// have dots as well: what counts is that it begins with a package of ours.
func isFunction(name string) bool {
	if closure.MatchString(name) {
		return true
	}
	slash := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[slash:], '.')
	if dot <= 0 {
		return false
	}
	// The runtime escapes dots in the last element of a path.
	pkg := strings.TrimSuffix(strings.ReplaceAll(name[:slash+dot], "%2e", "."), "_test")
	host, _, below := strings.Cut(pkg, "/")
	if pkg == "main" || pkg == "command-line-arguments" || below && strings.Contains(host, ".") {
		return true // as in example.com/app/jobs.Run
	}
	return slices.ContainsFunc(modules(), func(m string) bool {
		return pkg == m || strings.HasPrefix(pkg, m+"/")
	})
}
