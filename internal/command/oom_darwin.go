package command

// oomCounter has nothing to read on macOS.
type oomCounter struct{}

func newOOMCounter() oomCounter { return oomCounter{} }

func (oomCounter) read() int64 { return 0 }
