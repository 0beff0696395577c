// Command bench puts cronclave's locks beside those of other libraries, on redis-servers that it starts itself. All
// contenders of a scenario take turns within each round, so that other load of the machine hits them alike; printed
// are medians of the rounds.
//
//	go -C bench run . -scenario a -rounds 5 -for 2s
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// options are the flags of the command line.
type options struct {
	scenarios string
	rounds    int
	round     time.Duration // of each contender in each round
	leases    int
	hold      time.Duration
	only      string
	profile   string
	out       io.Writer
}

// scenario is one comparison; it prints its own table.
type scenario struct {
	name, title string
	run         func(context.Context, options) error
}

func scenarios() []scenario {
	return []scenario{
		{"a", "lock and unlock, one goroutine, client and server on one CPU", oneCaller},
		{"b", "lock and unlock, 64 goroutines, a lock for each", manyCallers},
		{"c", "one lock, held for 1 ms, 16 clients wait for it", contention},
		{"d", "lock and unlock on a quorum of five servers, one goroutine", quorum},
		{"e", "many leases, held and renewed", holding},
	}
}

func main() {
	o := options{out: os.Stdout}
	flag.StringVar(&o.scenarios, "scenario", "abcde", "which scenarios to run, by their letters")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of scenarios a to d")
	flag.DurationVar(&o.round, "for", 2*time.Second, "time of each contender in each round")
	flag.IntVar(&o.leases, "leases", 10_000, "leases of scenario e")
	flag.DurationVar(&o.hold, "hold", time.Minute, "how long scenario e holds them")
	flag.StringVar(&o.only, "only", "", "contenders to run, with commas between; all if empty")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile of this process to this file")
	flag.Parse()
	redis.SetLogger(silence{}) // scenario d has clients complain for each dial of a server that is to refuse it
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func run(ctx context.Context, o options) (err error) {
	if o.rounds < 1 || o.round <= 0 || o.leases < 1 || o.hold <= 0 {
		return errors.New("-rounds, -for, -leases and -hold must be positive")
	}
	all := scenarios()
	for _, letter := range o.scenarios {
		if !slices.ContainsFunc(all, func(s scenario) bool { return s.name == string(letter) }) {
			return fmt.Errorf("there is no scenario %q", letter)
		}
	}
	if o.profile != "" {
		stop, failed := profile(o.profile)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	fmt.Fprintf(o.out, "%s, %d CPUs, %s/%s; %d rounds of %v\n", runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, o.rounds, o.round)
	for _, s := range all {
		if !strings.Contains(o.scenarios, s.name) {
			continue
		}
		fmt.Fprintf(o.out, "\n%s: %s\n", s.name, s.title)
		if err := s.run(ctx, o); err != nil {
			return fmt.Errorf("scenario %s: %w", s.name, err)
		}
	}
	return nil
}

func profile(path string) (stop func() error, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}
