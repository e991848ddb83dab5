package store

import (
	"github.com/pgmutex/pgmutex/engine"
	"github.com/pgmutex/pgmutex/local"
)

// localEngine makes an engine for the store in a file, the default one where
// path is empty.
func localEngine(path string) (engine.Engine, error) { return local.New(path, nil) }
