package election

import "regexp"

// lockName matches the name of a lock in a text of package locking, as in `lock "{backup}:job"`: quoted, with the kind of the lock after the hash
// tag. It does not match a key of the server, which has a prefix and must stay searchable there.
var lockName = regexp.MustCompile(`(?:\block )?"\{([^{}"]+)\}:([a-z]+)(?::[^"]+)?"`)

// A plainError is an error whose text has the names that users know, in place of lock names.
type plainError struct {
	error
	text string
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.error }

// Plain returns an error of package locking with names that users know: job "backup" in place of lock "{backup}:job", and accordingly for pools and
// other locks. Every error that leaves this package is plain.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	plain := lockName.ReplaceAllString(text, `$2 "$1"`)
	if plain == text {
		return err
	}
	return plainError{err, plain}
}
