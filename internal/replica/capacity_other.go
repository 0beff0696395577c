//go:build !linux && !darwin

package replica

// limitsOfProcess returns no limits on systems that run no jobs.
func limitsOfProcess() resourceLimits { return resourceLimits{} }
