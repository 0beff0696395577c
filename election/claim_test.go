package election

import (
	"reflect"
	"testing"
	"time"
)

// TestNoFieldOfAClaimIsForgotten changes each field of a claim: the request to the engine changes with it.
func TestNoFieldOfAClaimIsForgotten(t *testing.T) {
	tick := time.Unix(1000, 0)
	base := Claim{Job: "j", ID: "i", Trigger: "schedule", Tick: tick, Slots: 1, PerTick: 1, Lease: time.Second}
	fields := reflect.VisibleFields(reflect.TypeFor[Claim]())
	for _, f := range fields {
		c := base
		switch v := reflect.ValueOf(&c).Elem().FieldByIndex(f.Index); v.Interface().(type) {
		case string:
			v.SetString("another")
		case bool:
			v.SetBool(true)
		case int, time.Duration:
			v.SetInt(7)
		case time.Time:
			v.Set(reflect.ValueOf(tick.Add(time.Hour)))
		default:
			t.Fatalf("field %s has a type that this test does not know", f.Name)
		}
		changed := !reflect.DeepEqual(c.lockRequest(), base.lockRequest())
		if f.Name == "Replace" { // is a request of its own: see [Elector.Claim]
			changed = !changed
		}
		if !changed {
			t.Errorf("field %s changes nothing", f.Name)
		}
	}
}
