//go:build !linux && !darwin

package replica

// limitsOfProcess returns no limits, because jobs do not run on this platform.
func limitsOfProcess() resourceLimits { return resourceLimits{} }
