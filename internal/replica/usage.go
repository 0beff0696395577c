package replica

// A UsageError is an error that waiting does not remedy: a fault of the configuration, a machine that does not fit the configuration, or data of a newer
// version.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e UsageError) Unwrap() error { return e.Err }
