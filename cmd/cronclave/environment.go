package main

// The environment variables that cronclave reads. readVariables documents them.
const (
	envConfig      = "CRONCLAVE_CONFIG"
	envRedis       = "CRONCLAVE_REDIS"
	envClockOffset = "CRONCLAVE_CLOCK_OFFSET"
	envRunID       = "CRONCLAVE_RUN_ID"
	envNoColor     = "NO_COLOR"
	envTerm        = "TERM"
	envUser        = "USER"
	envGC          = "GOGC"
)

// readVariable describes an environment variable that cronclave reads.
type readVariable struct{ name, doc string }

func readVariables() []readVariable {
	return []readVariable{
		{envConfig, "The configuration, where no `-c` names one."},
		{envRedis, "The URL of Redis, where no `--redis` names one; in the place of `[redis].url` and `quorum`. It may hold a password."},
		{envClockOffset, "`run`: a duration that is added to the replica's clock, to rehearse with wrong clocks."},
		{envRunID, "Set for a job's command. A cronclave process with it leaves its environment readable for the same user, so that the replica finds it, unless `" + envRedis + "` is set."},
		{envNoColor, "If it is set, logs, `demo`, `status` and `history` have no colours."},
		{envTerm, "If it is `dumb`, `demo`, `status` and `history` have no colours."},
		{envUser, "`trigger` records it, with the name of the host, as the one that asked."},
		{envGC, "Go's garbage collection. `run` takes 400 where it is not set."},
	}
}
