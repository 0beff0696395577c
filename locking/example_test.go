package locking_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/internal/embedded"
	"github.com/cronclave/cronclave/locking"
)

// connect returns a client of a new in-process Redis. Yours would be
//
//	redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", ContextTimeoutEnabled: true})
func connect() (rdb *redis.Client, closeAll func()) {
	server, err := embedded.Start(embedded.Config{})
	if err != nil {
		log.Fatal(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	return rdb, func() { _ = rdb.Close(); server.Close() }
}

func ExampleMutex() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	lease, ok, err := client.Mutex("orders").TryLock(ctx)
	if err != nil {
		log.Fatal(err) // no answer; a grant that the server may have made is given back
	}
	if !ok {
		return // another holds it
	}
	_, taken, _ := client.Mutex("orders").TryLock(ctx)
	fmt.Println("held:", ok, "- by another too:", taken)

	// Work under lease.Context(): it ends before the lease does. Pass lease.Token() on to what you change.
	fmt.Println("may go on:", lease.Context().Err() == nil)

	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("why it ended:", context.Cause(lease.Context()))
	// Output:
	// held: true - by another too: false
	// may go on: true
	// why it ended: lease released
}

func ExampleSemaphore() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	workers := client.Semaphore("workers", 2, locking.WithLease(time.Minute))
	for range 3 {
		lease, ok, err := workers.TryAcquire(ctx)
		switch {
		case err != nil:
			log.Fatal(err)
		case !ok:
			fmt.Println("all slots are held")
		default:
			defer lease.Release(ctx)
			fmt.Println("slot", lease.Slot())
		}
	}
	// Output:
	// slot 0
	// slot 1
	// all slots are held
}

// A holder that stood still brings its token to a resource that has seen a greater one. A resource that can compare tokens itself is
// safer: see docs/fencing.md.
func ExampleFence() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	reports := client.Fence("reports", locking.ForgetAfter(30*24*time.Hour))
	var tokens []locking.Token
	for range 2 {
		lease, _, err := client.Mutex("reports").TryLock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		tokens = append(tokens, lease.Token())
		_ = lease.Release(ctx)
	}
	fmt.Println("the newer holder:", reports.Pass(ctx, tokens[1]))

	err = reports.Pass(ctx, tokens[0])
	var stale *locking.StaleError
	switch {
	case errors.As(err, &stale):
		fmt.Println("the older one is stale, after the newer:", stale.Newest == tokens[1])
	case err != nil:
		fmt.Println("nobody knows: leave the reports alone, or ask again")
	}
	// Output:
	// the newer holder: <nil>
	// the older one is stale, after the newer: true
}

// A gate lets writes through in the order of their tokens.
func ExampleGate() {
	var gate locking.Gate
	latest := ""
	write := func(token locking.Token, text string) error {
		return gate.Do(token, func() error { latest = text; return nil })
	}
	fmt.Println(write(33, "by one"))
	fmt.Println(write(34, "by two"))
	fmt.Println(write(33, "by one, late"))
	fmt.Println(latest)
	// Output:
	// <nil>
	// <nil>
	// gate: stale fencing token: 33, after 34
	// by two
}

func ExampleName() {
	fmt.Println(locking.Name("orders", "17"))
	fmt.Println(locking.Name("files", "a:b", "{c}"))
	fmt.Println(locking.Tagged("orders", "17"))
	// Output:
	// orders:17
	// files:a%3Ab:%7Bc%7D
	// {orders}:17
}

// A function that locks by itself, and is also called where the lock is held already.
func ExampleMutex_LockReentrant() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	stock := client.Mutex("stock")

	var newest locking.Token
	count := func(ctx context.Context) error {
		_, lease, err := stock.LockReentrant(ctx)
		if err != nil {
			return err
		}
		defer lease.Release(ctx)
		fmt.Println("the lease from before:", lease.Token() == newest)
		newest = lease.Token()
		return nil
	}
	ctx, lease, err := stock.LockReentrant(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	newest = lease.Token()
	err = errors.Join(count(ctx), count(ctx), lease.Release(ctx))
	err = errors.Join(err, count(context.Background()))
	fmt.Println(err)
	// Output:
	// the lease from before: true
	// the lease from before: true
	// the lease from before: false
	// <nil>
}

// A transfer needs both accounts, or none: no caller waits with one of them in hand.
func ExampleClient_MultiLock() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "bank:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()
	from, to := locking.Tagged("accounts", "17"), locking.Tagged("accounts", "4")

	leases, err := client.MultiLock(from, to).With(locking.WithLease(time.Minute)).Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	// Work under leases.Context(): it ends with the first of the leases.
	tokens := leases.Tokens()
	fmt.Println("tokens of both:", tokens[from] > 0 && tokens[to] > 0)

	_, ok, err := client.MultiLock(to, locking.Tagged("accounts", "5")).TryLock(ctx)
	fmt.Println("another transfer meanwhile:", ok, err)
	fmt.Println("released:", leases.Release(ctx))
	// Output:
	// tokens of both: true
	// another transfer meanwhile: false <nil>
	// released: <nil>
}

// A counter needs no lock: a caller that was too late tries again.
func ExampleClient_Update() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	tries := 0
	err = client.Update(ctx, []string{"stock"}, func(tx *locking.Tx) error {
		tries++
		n, err := tx.Read.Get(ctx, "stock").Int()
		if err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if tries == 1 {
			rdb.Set(ctx, "stock", 10, 0) // somebody else is faster
		}
		tx.Write.Set(ctx, "stock", n+1, 0)
		return nil
	})
	fmt.Println(rdb.Get(ctx, "stock").Val(), "after", tries, "tries:", err)
	// Output:
	// 11 after 2 tries: <nil>
}

// Hooks feed metrics, of whichever kind.
func ExampleHooks() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Owner: "one", Hooks: locking.Hooks{
		Waited: func(lock string, wait time.Duration) {
			fmt.Println(lock, "was granted after less than a minute:", wait < time.Minute)
		},
		Contended: func(lock, holder string) { fmt.Println(lock, "is held by", holder) },
	}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	orders := client.Mutex("orders")
	lease, err := orders.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	_, ok, err := orders.TryLock(ctx)
	fmt.Println(ok, err, lease.Release(ctx))
	// Output:
	// orders was granted after less than a minute: true
	// orders is held by one
	// false <nil> <nil>
}

// A caller waits in line until the context ends: then it is out of the line, and holds nothing.
func ExampleMutex_Lock() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	lease, err := client.Mutex("orders").Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	patience, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = client.Mutex("orders").Lock(patience)
	switch {
	case errors.Is(err, locking.ErrUnknown): // the server did not answer
		log.Fatal(err)
	case errors.Is(err, context.DeadlineExceeded):
		fmt.Println("held by another for too long")
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: held by another for too long
}

// Three independent masters, of which any two keep the lock.
func ExampleConfig_quorum() {
	var masters []redis.UniversalClient
	for range 3 {
		rdb, closeAll := connect()
		defer closeAll()
		masters = append(masters, rdb)
	}
	client, err := locking.New(locking.Config{Quorum: masters, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	lease, ok, err := client.Mutex("orders").TryLock(ctx)
	if err != nil {
		log.Fatal(err) // no majority answers
	}
	fmt.Println("held:", ok)
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, _, err = client.MultiLock("{shop}:a", "{shop}:b").TryLock(ctx)
	fmt.Println("needs one server:", errors.Is(err, locking.ErrQuorum))
	// Output:
	// held: true
	// needs one server: true
}

// A printer can't compare tokens, so it is not granted within ten seconds of the end of a lease that was not
// released, when its holder may still be at work.
func ExampleWithDelay() {
	rdb, closeAll := connect()
	defer closeAll()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx := context.Background()

	printer := client.Mutex("printer", locking.WithDelay(10*time.Second))
	lease, err := printer.Lock(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if err := lease.Release(ctx); err != nil {
		log.Fatal(err)
	}
	_, ok, err := printer.TryLock(ctx)
	fmt.Println("after a release:", ok, err)
	// Output: after a release: true <nil>
}

// The server goes away, and so will the lease: there is a warning when a third of it is left, in time to stop well.
func ExampleLease_Endangered() {
	rdb, closeAll := connect()
	client, err := locking.New(locking.Config{Redis: rdb, Prefix: "shop:"})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	lease, err := client.Mutex("orders", locking.WithLease(time.Second)).Lock(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	closeAll()
	<-lease.Endangered()
	fmt.Println("finish the step, and begin no other")
	<-lease.Context().Done()
	fmt.Println("lost:", errors.Is(context.Cause(lease.Context()), locking.ErrLost))
	// Output:
	// finish the step, and begin no other
	// lost: true
}
