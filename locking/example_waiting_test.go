package locking_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/cronclave/cronclave/locking"
)

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
