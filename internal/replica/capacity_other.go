//go:build !linux && !darwin

package replica

// limitsOfProcess has nothing to read where no jobs are run.
func limitsOfProcess() resourceLimits { return resourceLimits{} }
