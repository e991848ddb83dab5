package doctor

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// LocalFacts is what was read about a local store. It decides nothing.
type LocalFacts struct {
	Path       string
	There      bool
	Mode       fs.FileMode // of the file
	StatError  string
	FileSystem string // its name, or its number where that has no name here
	Volatile   bool   // what is in it is gone after a restart
	Boot       string // names this boot of the kernel, empty where it does not say
	Format     [2]int // of the file, zero where its header does not say yet
	OpenError  string // why the store cannot be used
}

// ReadLocal looks at the file and its file system. It must not be called while
// this process has the store open: closing any descriptor of the file would drop
// the locks on it.
func ReadLocal(path string) *LocalFacts {
	f := &LocalFacts{Path: path, Boot: bootID()}
	info, err := os.Stat(path)
	on := path
	switch {
	case err == nil:
		f.There, f.Mode = true, info.Mode()
		if info.Mode().IsRegular() {
			f.Format = format(path)
		}
	case os.IsNotExist(err):
		on = filepath.Dir(path)
	default:
		f.StatError = err.Error()
	}
	f.FileSystem, f.Volatile = fileSystem(on)
	return f
}

// format reads the number of the format from the header of the SQLite file,
// where it arrives with the first checkpoint.
func format(path string) [2]int {
	const userVersion, applicationID, ours, steps = 60, 68, 0x70676d78, 1000
	file, err := os.Open(path)
	if err != nil {
		return [2]int{}
	}
	defer file.Close()
	var header [100]byte
	if _, err := file.ReadAt(header[:], 0); err != nil {
		return [2]int{}
	}
	number := func(at int) int {
		return int(header[at])<<24 | int(header[at+1])<<16 | int(header[at+2])<<8 | int(header[at+3])
	}
	if number(applicationID) != ours {
		return [2]int{}
	}
	return [2]int{number(userVersion) / steps, number(userVersion) % steps}
}

// Judge says what the facts mean. It does no I/O.
func (f *LocalFacts) Judge() []Finding {
	var r report
	others := f.Mode.Perm() & 0o022
	switch {
	case f.StatError != "":
		r.add("file", Error, f.StatError, "choose another file with --local=PATH, or correct the rights on its directory")
	case !f.There:
		r.add("file", Note, f.Path+" does not exist yet", "nothing: the first run makes it")
	case !f.Mode.IsRegular():
		r.add("file", Error, f.Path+" is not a regular file", "choose another file with --local=PATH")
	case others != 0:
		r.add("file", Warning, fmt.Sprintf("%s has mode %04o: others can take and break its locks", f.Path, f.Mode.Perm()),
			fmt.Sprintf("chmod %04o, unless that is meant", f.Mode.Perm()&^0o022))
	default:
		r.ok("file", "%s, mode %04o", f.Path, f.Mode.Perm())
	}
	switch {
	case f.FileSystem == "":
		r.add("file system", Note, "it cannot be told", "see that it is on a local disk")
	case f.Volatile:
		r.add("file system", Note, f.FileSystem+": tokens begin again after each restart", "use a file on a disk if something compares tokens")
	default:
		r.ok("file system", "%s", f.FileSystem)
	}
	if f.Boot == "" {
		r.add("boot", Note, "this system does not name its boot: holds from before a restart last until they are stale", "nothing")
	} else {
		r.ok("boot", "%s: what was held before it is free", f.Boot)
	}
	switch {
	case f.OpenError != "":
		r.add("store", Error, f.OpenError, "correct that, or choose another file with --local=PATH")
	case !f.There:
	case f.Format[0] == 0:
		r.ok("store", "it can be used")
	default:
		r.ok("store", "format %d.%d, and it can be used", f.Format[0], f.Format[1])
	}
	return r.list
}
