package replica

// A UsageError is an error of the configuration, of the machine that does not fit it, or of data of a newer version. Waiting does not remedy it.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e UsageError) Unwrap() error { return e.Err }
