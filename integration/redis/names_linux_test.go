package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"github.com/cronclave/cronclave/integration/harness"
	"github.com/cronclave/cronclave/internal/testtier"
)

// redisName is a name that only the nameserver of a test knows.
const redisName = "redis.cronclave.test"

// nameserver knows one name. It is slow to answer for IPv4, and never answers for IPv6.
type nameserver struct {
	conn  net.PacketConn
	delay time.Duration
	work  sync.WaitGroup

	mu    sync.Mutex
	addr  netip.Addr
	asked map[dnsmessage.Type]int
}

// resolverIn is the nameservers of a resolv.conf, in their order: one that never answers, and the other one.
type resolverIn struct {
	conf   string // the path of the file
	silent net.PacketConn
	*nameserver
}

// startResolver serves names on addresses of the loopback network. It ends with the test.
func startResolver(t *testing.T, addr netip.Addr, delay time.Duration) *resolverIn {
	t.Helper()
	r := &resolverIn{conf: filepath.Join(t.TempDir(), "resolv.conf"), silent: listenAtPort53(t)}
	r.nameserver = &nameserver{conn: listenAtPort53(t), delay: delay, addr: addr, asked: map[dnsmessage.Type]int{}}
	var conf strings.Builder
	for _, conn := range []net.PacketConn{r.silent, r.conn} {
		fmt.Fprintf(&conf, "nameserver %s\n", conn.LocalAddr().(*net.UDPAddr).IP)
	}
	if err := os.WriteFile(r.conf, []byte(conf.String()), 0o644); err != nil { //nolint:gosec // as resolv.conf is
		t.Fatal(err)
	}
	r.work.Go(func() { r.serve(t) })
	t.Cleanup(func() {
		_ = r.conn.Close()
		r.work.Wait()
	})
	return r
}

// listenAtPort53 listens at an unused address of the loopback network: resolv.conf has no ports. Another test, or a nameserver of the machine,
// may be at the address that it tries first.
func listenAtPort53(t *testing.T) net.PacketConn {
	t.Helper()
	const tries = 100
	var err error
	for range tries {
		var conn net.PacketConn
		addr := netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 1})
		if conn, err = net.ListenPacket("udp", netip.AddrPortFrom(addr, 53).String()); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			return conn
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	t.Fatalf("%v; this test serves names at port 53 of the loopback network, which needs root, and no nameserver that listens at all addresses", err)
	return nil
}

// inside returns the command line that runs a program in a mount namespace of its own, whose /etc/resolv.conf names the nameservers. Nothing of the machine changes.
func (r *resolverIn) inside(t *testing.T, program string, args ...string) []string {
	t.Helper()
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`
	line := append([]string{"unshare", "--mount", "sh", "-c", script, r.conf, program}, args...)
	if said, err := exec.CommandContext(t.Context(), line[0], append(slices.Clone(line[1:6]), "true")...).CombinedOutput(); err != nil {
		t.Fatalf("unshare --mount: %v: %s; this test needs root, util-linux and a /etc/resolv.conf (for a container: --cap-add SYS_ADMIN)", err, said)
	}
	return line
}

func (n *nameserver) serve(t *testing.T) {
	buf := make([]byte, 1500)
	for {
		size, from, err := n.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := n.reply(t, buf[:size]); reply != nil {
			time.AfterFunc(n.delay, func() { _, _ = n.conn.WriteTo(reply, from) }) // which fails once the test is over
		}
	}
}

// reply returns the answer to a query, nil for none.
func (n *nameserver) reply(t *testing.T, query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		t.Errorf("query %x: %v", query, err)
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	q := m.Questions[0]
	n.asked[q.Type]++
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	switch {
	case q.Type != dnsmessage.TypeA:
		return nil
	case !strings.EqualFold(q.Name.String(), redisName+"."):
		m.RCode = dnsmessage.RCodeNameError
	default:
		m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type, TTL: 1}, Body: &dnsmessage.AResource{A: n.addr.As4()}}}
	}
	reply, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return reply
}

// move gives the name another address.
func (n *nameserver) move(to netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = to
}

// questions returns how often the nameserver was asked for addresses of IPv4 and of IPv6.
func (n *nameserver) questions() (v4, v6 int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[dnsmessage.TypeA], n.asked[dnsmessage.TypeAAAA]
}

// TestNamesThatResolveSlowly has replicas look up their Redis at a nameserver that does not answer, then at one that takes 3 s for IPv4 and drops IPv6: 8 s in all. The
// ticks of that time wait, and each runs once, also when the name gets another address and the old one is gone. status waits for its first connection.
func TestNamesThatResolveSlowly(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	first, second := netip.MustParseAddr("127.77.1.1"), netip.MustParseAddr("127.77.1.2")
	c := harness.NewCluster(t, "[jobs.a]\nschedule = \"* * * * * *\"\nstart_deadline = \"60s\"\nparallel = 60\nper_tick = 1\ncommand = '\"$SCRIBE\" -for 10ms'\n")
	old := harness.StartProxyAt(t, first.String()+":0", c.Client.Options().Addr, nil, nil)
	_, port, err := net.SplitHostPort(old.Addr())
	if err != nil {
		t.Fatal(err)
	}
	resolver := startResolver(t, first, 3*time.Second)
	env := []string{"GODEBUG=netdns=go", "CRONCLAVE_REDIS=redis://" + net.JoinHostPort(redisName, port) + "/0"} // as in the released program, which is static
	start := func(name string, args ...string) *harness.Replica {
		line := resolver.inside(t, harness.Program(t, harness.CronclaveProgram), append(args, "--namespace", c.Namespace)...)
		return harness.StartObserved(t, name, "", append(env, harness.QuickExit), line[0], line[1:]...)
	}
	began := harness.RedisTime(t, c.Client)
	var replicas []*harness.Replica
	for n := range 2 {
		name := fmt.Sprint("r", n)
		replicas = append(replicas, start(name, "run", "--config", c.Path, "--replica", name, "--log-format", "json"))
	}
	c.AwaitRun(t, time.Minute, "a", "a run", func(r harness.PastRun) bool { return r.Outcome == "ok" })
	if took := harness.RedisTime(t, c.Client).Sub(began); took < 8*time.Second {
		t.Errorf("the first run after %v: the name was not looked up at the silent nameserver and the slow one", took)
	}
	if status := start("status", "status"); status.Wait(t, time.Minute) != 0 {
		t.Errorf("status: %q", status.Log())
	}

	harness.StartProxyAt(t, net.JoinHostPort(second.String(), port), c.Client.Options().Addr, nil, nil)
	asked, _ := resolver.questions()
	resolver.move(second)
	old.Close()
	moved := harness.RedisTime(t, c.Client)
	c.AwaitRun(t, 2*time.Minute, "a", "a run at the new address", func(r harness.PastRun) bool { return r.Outcome == "ok" && r.Tick.After(moved.Add(5*time.Second)) })
	if again, v6 := resolver.questions(); again == asked || v6 == 0 {
		t.Errorf("asked %d times for IPv4, %d of these before the move, and %d times for IPv6", again, asked, v6)
	}
	harness.StopAll(t, replicas)
	c.CheckEachTickOnce(t, "a")
}
