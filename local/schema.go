package local

import (
	_ "embed"
	"fmt"
)

// The format of the file is in its user_version, as major*1000 + minor. Formats
// of one major number differ by additions only: programs of either use the file
// side by side, the newer one having added what it needs. A program refuses a
// file of another major number.
const (
	formatMajor = 1
	formatMinor = 0
	format      = formatMajor*formatSteps + formatMinor
	formatSteps = 1000
)

// applicationID marks the file as ours: "pgmx".
const applicationID = 0x70676d78

const firstBoot = `UPDATE meta SET boot = ?`

//go:embed schema.sql
var schemaSQL string

// additions are what each minor number adds to the one before, from 1 on.
var additions = []string{}

// verify makes sure that the file is a store which this program can use, making
// an empty one into a store, in the given boot.
func (d *database) verify(boot string) error {
	var version, app int64
	// In one look: another process may be making the store at this moment.
	err := d.transact(look, func() (err error) {
		version, app, err = d.marks()
		if err == nil {
			err = d.refuse(version, app)
		}
		return err
	})
	if err != nil {
		return err
	}
	// A property of the file, which cannot be set inside of a transaction; nothing
	// happens if it is set.
	if err := d.setWAL(); err != nil {
		return err
	}
	if app == applicationID && version >= format {
		return nil
	}
	// On the disk before it is used: a store that lost its making with the power,
	// and began anew, would begin with the first token again.
	return d.durably(boot, func() error {
		return d.transact(begin, func() error { return d.raiseFormat(boot) })
	})
}

// marks returns what the file says of itself.
func (d *database) marks() (version, app int64, err error) {
	if err := d.row("PRAGMA user_version").scan(&version); err != nil {
		return 0, 0, err
	}
	err = d.row("PRAGMA application_id").scan(&app)
	return version, app, err
}

// refuse returns why this program must not touch the file, nil if it may.
func (d *database) refuse(version, app int64) error {
	if app == applicationID && version > 0 {
		if major := version / formatSteps; major != formatMajor {
			return fmt.Errorf("local: %s has format %d.%d, this program knows %d.x: use one version of it, or another file",
				d.path, major, version%formatSteps, formatMajor)
		}
		return nil
	}
	var objects int64
	if err := d.row("SELECT count(*) FROM sqlite_schema").scan(&objects); err != nil {
		return err
	}
	if app != 0 || version != 0 || objects != 0 {
		return fmt.Errorf("local: %s is a SQLite database of another program: the store needs a file of its own", d.path)
	}
	return nil
}

// setWAL puts the file into the mode in which looking never waits for writing.
func (d *database) setWAL() error {
	var mode string
	if err := d.row("PRAGMA journal_mode = wal").scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("local: %s cannot be used with a write-ahead log (journal mode %q): its file system lacks shared memory", d.path, mode)
	}
	return nil
}

// raiseFormat brings the file to this program's format, as one of possibly many
// processes that found it older.
func (d *database) raiseFormat(boot string) error {
	version, app, err := d.marks()
	if err != nil {
		return err
	}
	if err := d.refuse(version, app); err != nil {
		return err
	}
	if version >= format {
		return nil
	}
	steps := append([]string{schemaSQL}, additions...)
	if app == applicationID {
		steps = steps[version%formatSteps+1:]
	}
	for _, step := range steps {
		if err := d.exec(step); err != nil {
			return err
		}
	}
	if app != applicationID {
		if err := d.run(firstBoot, boot); err != nil {
			return err
		}
	}
	return d.exec(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", applicationID, format))
}
