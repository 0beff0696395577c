package scheduler_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/election"
	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
	"github.com/cronclave/cronclave/scheduler"
)

// A Go function as a job. Every process that runs this with the same Redis is a replica, and each tick runs on one of them.
func Example() {
	server, err := embedded.Start(embedded.Config{}) // yours is a real Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:", Owner: "replica-1"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	s, err := scheduler.New(scheduler.Config{
		Claimer: elector,
		Jobs: []scheduler.Job{{
			Name:     "report",
			Schedule: []string{"* * * * * *"}, // each second
			Runner: scheduler.Func(func(_ context.Context, run *scheduler.Run) error {
				fmt.Println(run.Job, "runs in slot", run.Slot, "as attempt", run.Attempt, "with a token:", run.Token > 0)
				stop() // or on SIGTERM, see signal.NotifyContext
				return nil
			}),
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Run(ctx); err != nil { // drains, and returns
		fmt.Println(err)
	}
	// Output: report runs in slot 0 as attempt 1 with a token: true
}

// A bounded worker: two jobs come due at the same time, and share a pool of one slot with all other replicas. The second one waits until the first is
// over, for as long as its start deadline allows.
func ExamplePool() {
	server, err := embedded.Start(embedded.Config{}) // yours is a real Redis
	if err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer locks.Close()
	elector, err := election.New(election.Config{Locks: locks})
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, stop := context.WithCancel(context.Background())
	var ran, inside atomic.Int32
	work := scheduler.Func(func(context.Context, *scheduler.Run) error {
		defer inside.Add(-1)
		beside := inside.Add(1) - 1
		if n := ran.Add(1); n <= 2 {
			fmt.Println("beside", beside, "others")
			if n == 2 {
				stop()
			}
		}
		return nil
	})
	warehouse := scheduler.Pool{Name: "warehouse", Slots: 1}
	s, err := scheduler.New(scheduler.Config{
		Claimer: elector,
		Pools:   elector,
		Jobs: []scheduler.Job{
			{Name: "import", Schedule: []string{"* * * * * *"}, Pool: warehouse, Runner: work},
			{Name: "export", Schedule: []string{"* * * * * *"}, Pool: warehouse, Runner: work, StartDeadline: 10 * time.Second},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := s.Run(ctx); err != nil { // drains, and returns
		fmt.Println(err)
	}
	// Output:
	// beside 0 others
	// beside 0 others
}

// poster is a runner of its own: a run is a request to a service, which refuses tokens that are older than one it has seen.
type poster struct{ url string }

func (p poster) Run(ctx context.Context, run *scheduler.Run) scheduler.Result {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/"+run.Job, nil)
	if err != nil {
		return scheduler.Result{Err: err}
	}
	request.Header.Set("Fencing-Token", fmt.Sprint(run.Token))
	request.Header.Set("Idempotency-Key", run.ID)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return scheduler.Result{Err: err}
	}
	defer response.Body.Close()
	said, err := io.ReadAll(io.LimitReader(response.Body, 16<<10))
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	return scheduler.Result{Err: err, Output: said} // the output is kept in the history
}

// Jobs that are neither Go functions nor commands: a runner says what a run is, how it is stopped, and how it ended.
func ExampleRunner() {
	var newest int64
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, _ := strconv.ParseInt(r.Header.Get("Fencing-Token"), 10, 64)
		if token < newest {
			http.Error(w, "stale", http.StatusConflict)
			return
		}
		newest = token
		fmt.Fprint(w, r.URL.Path, " is done")
	}))
	defer service.Close()
	s, err := scheduler.New(scheduler.Config{Jobs: []scheduler.Job{{Name: "report", Schedule: []string{"0 3 * * *"}, Runner: poster{service.URL}}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	record, err := s.RunNow(context.Background(), "report", false) // here, now, and without a lock; with Run the cluster runs it at three
	if err != nil || record.Output == nil {
		fmt.Println(record.Outcome, err)
		return
	}
	fmt.Printf("%s, %s\n", record.Outcome, *record.Output)
	// Output: ok, /report is done
}
