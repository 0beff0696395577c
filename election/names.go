package election

import "regexp"

// lockName is the name of a lock in a text of package locking, as in `lock "{backup}:job"`: quoted, with what it is a lock of behind the hash tag. A key
// of the server has a prefix, and is left as it is: that is how it is found there.
var lockName = regexp.MustCompile(`(?:\block )?"\{([^{}"]+)\}:([a-z]+)(?::[^"]+)?"`)

// plainError is an error whose text names locks as users do.
type plainError struct {
	error
	text string
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.error }

// Plain is an error of package locking in the words of users: job "backup" for the lock "{backup}:job", and so for pools and all other locks that are named
// by what they are of. Every error that leaves this package is plain.
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
