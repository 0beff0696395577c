package replica

// UsageError is an error of the configuration, of the machine that it does not fit, or of data of a newer version: waiting does not mend it.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap is the error itself.
func (e UsageError) Unwrap() error { return e.Err }
