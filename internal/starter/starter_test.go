package starter

import (
	"reflect"
	"syscall"
	"testing"
)

// TestOrderSurvivesTheChannel: arguments and variables arrive byte by byte, whatever is in them.
func TestOrderSurvivesTheChannel(t *testing.T) {
	mask, nice := uint32(0o27), -3
	for name, o := range map[string]Order{
		"bare": {Path: "/bin/true", Argv: []string{"/bin/true"}, Env: []string{}},
		"full": {Path: "/a b", Dir: "/\xff", Argv: []string{"", "\x80\n"}, Env: []string{"A=\xfe", "B="}, Umask: &mask, Nice: &nice, InCgroup: true, DropInheritable: true,
			NoNewPrivs: true, Credential: &syscall.Credential{Uid: 1, Gid: 4294967294, Groups: []uint32{5, 6}, NoSetGroups: true}},
	} {
		got, err := parseOrder(o.Bytes()[4:])
		if err != nil || !reflect.DeepEqual(*got, o) {
			t.Errorf("%s: got %+v, %v", name, got, err)
		}
	}
}

// TestDamagedOrder: an order that was cut off is refused, wherever it was cut.
func TestDamagedOrder(t *testing.T) {
	o := Order{Path: "/bin/true", Argv: []string{"/bin/true"}, Credential: &syscall.Credential{Uid: 1, Groups: []uint32{}}}
	whole := o.Bytes()[4:]
	for n := range whole {
		if _, err := parseOrder(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(whole))
		}
	}
	if r := (Reply{PID: 70000, Step: Privileges, Error: syscall.EPERM}); ParseReply(r.Bytes()) != r {
		t.Errorf("a reply arrives as %+v", ParseReply(r.Bytes()))
	}
}
