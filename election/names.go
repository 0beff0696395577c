package election

import "regexp"

// lockName matches a quoted lock name in an error text of package locking, such as `lock "{backup}:job"`: the hash tag, then the kind of the lock. It
// does not match a Redis key, which has a prefix, so that users can search for the key in Redis.
var lockName = regexp.MustCompile(`(?:\block )?"\{([^{}"]+)\}:([a-z]+)(?::[^"]+)?"`)

// A plainError is an error whose text has job and pool names in place of lock names.
type plainError struct {
	error
	text string
}

func (e plainError) Error() string { return e.text }
func (e plainError) Unwrap() error { return e.error }

// Plain replaces the lock names in an error of package locking by names that users know, such as lock "{backup}:job" by job "backup". Every error
// that leaves this package has been passed through Plain.
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
