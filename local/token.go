package local

import (
	"context"
	"errors"
)

// raise is what a new boot adds to the tokens: more than a log that was not yet
// on the disk can have held, even if each grant had been its only content.
const raise = 1 << 24

// errNewBoot ends a transaction that would draw the first token of a boot.
var errNewBoot = errors.New("local: the first grant of this boot")

const (
	selectMeta = `SELECT token, boot FROM meta WHERE id = 1`
	drawToken  = `UPDATE meta SET token = token + 1 WHERE id = 1 RETURNING token`
	raiseToken = `UPDATE meta SET token = token + ?, boot = ? WHERE id = 1 AND boot <> ?`
)

// draw returns the next token.
//
// Commits are not forced to the disk, so a loss of power takes the last of them
// back, with the tokens that they drew. Therefore the first grant of a boot
// raises the tokens first, and that is forced. Where the boot is not known,
// every commit is; such processes and others raise over each other.
func (p *process) draw() (token int64, err error) {
	var boot string
	if err := p.db.row(selectMeta).scan(&token, &boot); err != nil {
		return 0, err
	}
	if boot != p.boot {
		if p.boot != "" {
			return 0, errNewBoot
		}
		if err := p.db.run(raiseToken, raise, p.boot, p.boot); err != nil {
			return 0, err
		}
	}
	err = p.db.row(drawToken).scan(&token)
	return token, err
}

// enterBoot raises the tokens for this boot, once, on the disk before anybody
// can see it.
func (p *process) enterBoot(ctx context.Context) error {
	return p.db.durably(p.boot, func() error {
		return p.attend(ctx, begin, func() error {
			err := p.db.run(raiseToken, raise, p.boot, p.boot)
			return err
		})
	})
}

// durably runs fn, whose transactions are on the disk when they end. The setting
// cannot be changed inside of one.
func (d *database) durably(boot string, fn func() error) error {
	if boot == "" {
		return fn() // all of them are, see connect
	}
	if err := d.exec("PRAGMA synchronous = FULL"); err != nil {
		return err
	}
	return errors.Join(fn(), d.exec("PRAGMA synchronous = NORMAL"))
}
