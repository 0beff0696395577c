// Package journaltest is the conformance suite of package journal: the
// promises of the journal must hold on every server that it may be used with, one Redis,
// a Cluster or the in-process server.
package journaltest

import (
	"testing"

	"github.com/redis/go-redis/v9"
)

// Run runs the suite. connect returns a client, with ContextTimeoutEnabled, of
// the server to test; each test works in a namespace of its own and removes what
// it wrote.
func Run(t *testing.T, connect func(t *testing.T) redis.UniversalClient) {
	for name, test := range map[string]func(*suite){
		"end completes running":           endCompletesRunning,
		"words in any order":              wordsInAnyOrder,
		"abandoned keeps its start":       abandonedKeepsItsStart,
		"first of equal words stands":     firstStands,
		"later attempt of a run stands":   laterAttemptStands,
		"repeating changes nothing":       repeating,
		"late running revives nothing":    lateRunning,
		"fields survive":                  fieldsSurvive,
		"order and limits of Runs":        orderAndLimits,
		"newest of each job":              recentOfEach,
		"batch over many jobs":            manyJobs,
		"invalid records":                 invalidRecords,
		"bounded by runs":                 boundedByRuns,
		"bounded beside other writers":    boundedByWriters,
		"lowered limit":                   loweredLimit,
		"running is trimmed last":         runningLast,
		"too old is trimmed":              tooOld,
		"all expires":                     allExpires,
		"output of every size":            outputSizes,
		"oldest output goes first":        oldestOutput,
		"many small outputs":              smallOutputs,
		"damage is told and passed over":  damage,
		"foreign keys fail one job alone": foreignKeys,
		"replicas come and go":            replicas,
		"name of a lost replica is back":  nameIsBack,
		"loss beside a damaged list":      lossIsClaimedBesideDamage,
		"foreign replicas":                foreignReplicas,
		"forgotten replica":               forgottenReplica,
		"epochs":                          epochs,
		"jobs are described":              jobs,
		"one run":                         oneRun,
		"failures of a window":            failuresOfAWindow,
		"streaks of failures":             streaks,
		"streaks and late news":           streaksOfLateNews,
		"streaks and gaps":                streaksOfGaps,
		"streaks and a late ok":           streaksOfALateOK,
		"requests":                        requests,
		"answers to requests":             answers,
		"damaged requests":                damagedRequests,
		"requests expire":                 requestsExpire,
		"requests are heard":              requestsAreHeard,
		"live output":                     liveOutput,
		"incidents of Redis":              incidents,
		"configurations":                  configurations,
		"configurations of versions":      configurationsOfVersions,
		"long configurations":             longConfigurations,
		"configurations have one writer":  configurationsHaveOneWriter,
		"damaged configurations":          damagedConfigurations,
		"uses of locks":                   lockUses,
		"format":                          format,
		"secret of sessions":              sessionSecrets,
		"all keys in the namespace":       keys,
		"namespaces share nothing":        namespaces,
	} {
		t.Run(name, func(t *testing.T) { test(newSuite(t, connect(t))) })
	}
}
