package redis

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/cronclave/cronclave/internal/lease"
)

// fullRequest is a request for which the script gets all groups of arguments.
func fullRequest() lease.Request {
	at := time.Unix(1_700_000_000, 0)
	return lease.Request{Lock: "x", ID: "id", Slots: 2, Lease: time.Minute, Channel: "c", Tick: &lease.Tick{
		At: at, Instant: at.Add(time.Hour), Previous: at.Add(-time.Minute), PerTick: 1, NotBefore: at, Deadline: at.Add(time.Hour), KeepFirst: true}}
}

// Each field of a request changes the arguments of the script, unless the list has a reason why it does not.
func TestNoFieldOfARequestIsForgotten(t *testing.T) {
	common := map[string]string{
		"Lock":      "is in the names of the keys",
		"ID":        "is in the arguments that all scripts have",
		"Permanent": "is the idle time in the arguments that all scripts have",
		"FirstTry":  "chooses the script for a compact lock",
	}
	tick := map[string]string{"Replace": "is a stop request of its own"}
	onServer := func(r *lease.Request) string { return fmt.Sprint(acquireParams.encode(r, "owner")) }
	wantSent(t, "acquire", common, func(r *lease.Request) any { return r }, onServer)
	wantSent(t, "acquire", tick, func(r *lease.Request) any { return r.Tick }, onServer)
	node := map[string]string{
		"Trigger": "is in the register",
		"Memo":    "is in the register",
		"Abstain": "asks for no row",
		"Adopt":   "is in the register, and among the ids to shut",
		"Tick":    "is in the register",
		"Channel": "is for a queue, which a quorum does not have",
	}
	for field, why := range common {
		node[field] = why
	}
	wantSent(t, "quorum_claim", node, func(r *lease.Request) any { return r }, func(r *lease.Request) string { return fmt.Sprint(NodeClaim{Request: r}.Encode()) })
}

// wantSent changes each field of a part of the request, and wants other arguments if, and only if, the field has no reason.
func wantSent(t *testing.T, script string, unsent map[string]string, part func(*lease.Request) any, encode func(*lease.Request) string) {
	t.Helper()
	full := fullRequest()
	of := reflect.TypeOf(part(&full)).Elem()
	for i := range of.NumField() {
		r, name := fullRequest(), of.Field(i).Name
		changeValue(t, reflect.ValueOf(part(&r)).Elem().Field(i))
		if sent, why := encode(&r) != encode(&full), unsent[name]; sent == (why != "") {
			t.Errorf("%s: %s.%s is sent: %v; reason not to: %q", script, of.Name(), name, sent, why)
		}
	}
	for name := range unsent {
		if _, ok := of.FieldByName(name); !ok {
			t.Errorf("%s: %s has no field %s", script, of.Name(), name)
		}
	}
}

// changeValue sets a field to another value, which is not zero unless it is a pointer or a flag that was set.
func changeValue(t *testing.T, f reflect.Value) {
	t.Helper()
	switch v := f.Addr().Interface().(type) {
	case *string:
		*v += "other"
	case *bool:
		*v = !*v
	case *int:
		*v += 7
	case *time.Duration:
		*v += 7 * time.Second
	case *time.Time:
		*v = v.Add(7 * time.Second)
	case **lease.Tick:
		*v = nil
	default:
		t.Fatalf("no other value of type %v", f.Type())
	}
}
