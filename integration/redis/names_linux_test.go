package redis

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
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

// blackHole is an address of a [privateNetwork] that answers nothing, not even with an error.
var blackHole = netip.MustParseAddr("192.0.2.9")

// A privateNetwork is a network namespace without a way out. It has the loopback device, with two more addresses, and the device hole. A frame to the black hole
// leaves through that device and is for no other.
type privateNetwork struct{ file *os.File }

const privateDevices = `
link set lo up
address add 198.51.100.1/32 dev lo
address add 198.51.100.2/32 dev lo
link add hole type veth peer name drain
link set hole addrgenmode none
link set drain addrgenmode none
address add 192.0.2.1/24 dev hole
link set hole up
link set drain up
neighbor add 192.0.2.9 lladdr 02:00:00:00:00:09 dev hole nud permanent
`

// newPrivateNetwork creates a namespace that ends with the test and its processes.
func newPrivateNetwork(t *testing.T) *privateNetwork {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("this test needs root: it creates a network namespace, and serves names in it")
	}
	n := &privateNetwork{}
	inNamespace(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) }, func() {
		n.file = openNamespace(t)
		devices := exec.CommandContext(t.Context(), "ip", "-batch", "-")
		devices.Stdin = strings.NewReader(privateDevices)
		if said, err := devices.CombinedOutput(); err != nil {
			t.Fatalf("set up the devices of a network namespace: %v: %s; this test needs iproute2 (apt-get install iproute2)", err, said)
		}
	})
	return n
}

func openNamespace(t *testing.T) *os.File {
	t.Helper()
	file := harness.Must1(os.Open("/proc/thread-self/ns/net"))(t)
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// in runs a function in the namespace. The sockets that it opens and the processes that it starts stay there.
func (n *privateNetwork) in(t *testing.T, f func()) {
	t.Helper()
	inNamespace(t, func() error { return unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET) }, f)
}

// inNamespace runs a function on a thread that has entered another network namespace. If the thread cannot return from it, it ends with the goroutine of the test.
func inNamespace(t *testing.T, enter func() error, f func()) {
	t.Helper()
	runtime.LockOSThread()
	own := openNamespace(t)
	if err := enter(); err != nil {
		t.Fatalf("enter a network namespace: %v (for a container: --cap-add SYS_ADMIN --cap-add NET_ADMIN)", err)
	}
	defer func() {
		harness.Must(t, unix.Setns(int(own.Fd()), unix.CLONE_NEWNET))
		runtime.UnlockOSThread()
	}()
	f()
}

// lost returns the number of packets that went into the black hole.
func (n *privateNetwork) lost(t *testing.T) (packets int) {
	t.Helper()
	n.in(t, func() {
		_, counts, found := strings.Cut(string(harness.Must1(os.ReadFile("/proc/thread-self/net/dev"))(t)), "hole:")
		fields := strings.Fields(counts) // eight of received packets, then bytes and packets that were sent
		if !found || len(fields) < 10 {
			t.Fatalf("no counts of the device hole: %q", counts)
		}
		packets = harness.Must1(strconv.Atoi(fields[9]))(t)
	})
	return packets
}

// nameserver knows one name. It is slow to answer for IPv4, and never answers for IPv6.
type nameserver struct {
	conn  net.PacketConn
	delay time.Duration
	work  sync.WaitGroup

	mu    sync.Mutex
	addrs []netip.Addr
	asked map[dnsmessage.Type]int
}

// startResolver serves names in the namespace of its thread, at the second address of [resolvConf]. At the first one it only listens. It ends with the test.
func startResolver(t *testing.T, delay time.Duration, addrs ...netip.Addr) *nameserver {
	t.Helper()
	dead := harness.Must1(net.ListenPacket("udp", "127.0.0.2:53"))(t)
	n := &nameserver{conn: harness.Must1(net.ListenPacket("udp", "127.0.0.3:53"))(t), delay: delay, addrs: addrs, asked: map[dnsmessage.Type]int{}}
	n.work.Go(func() { n.serve(t) })
	t.Cleanup(func() {
		_ = dead.Close()
		_ = n.conn.Close()
		n.work.Wait()
	})
	return n
}

const resolvConf = "nameserver 127.0.0.2\nnameserver 127.0.0.3\n"

// withResolver returns the command line that runs a program in a mount namespace of its own, whose /etc/resolv.conf is [resolvConf]. Nothing of the machine changes.
func withResolver(t *testing.T, program string, args ...string) []string {
	t.Helper()
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(conf, []byte(resolvConf), 0o644); err != nil { //nolint:gosec // as resolv.conf is
		t.Fatal(err)
	}
	script := `mount --bind "$0" "$(readlink -f /etc/resolv.conf)" && exec "$@"`
	line := append([]string{"unshare", "--mount", "sh", "-c", script, conf, program}, args...)
	if said, err := exec.CommandContext(t.Context(), line[0], append(slices.Clone(line[1:6]), "true")...).CombinedOutput(); err != nil {
		t.Fatalf("unshare --mount: %v: %s; this test needs util-linux and a /etc/resolv.conf (for a container: --cap-add SYS_ADMIN)", err, said)
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
		for _, a := range n.addrs {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, Type: q.Type, TTL: 1}, Body: &dnsmessage.AResource{A: a.As4()}})
		}
	}
	reply, err := m.Pack()
	if err != nil {
		t.Error(err)
	}
	return reply
}

// move gives the name other addresses.
func (n *nameserver) move(to ...netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addrs = to
}

// questions returns how often the nameserver was asked for addresses of IPv4 and of IPv6.
func (n *nameserver) questions() (v4, v6 int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[dnsmessage.TypeA], n.asked[dnsmessage.TypeAAAA]
}

// TestNamesThatResolveSlowly has replicas look up their Redis at a nameserver that does not answer, then at one that takes 3 s for IPv4 and drops IPv6: 8 s in all. The
// first address of the name is a black hole. The ticks of that time wait, and each runs once, also when the second address is replaced and the old one is gone. status
// waits for its first connection.
func TestNamesThatResolveSlowly(t *testing.T) {
	testtier.Slow(t)
	t.Parallel()
	network := newPrivateNetwork(t)
	c := harness.NewCluster(t, "[jobs.a]\nschedule = \"* * * * * *\"\nstart_deadline = \"60s\"\nparallel = 60\nper_tick = 1\ncommand = '\"$SCRIBE\" -for 10ms'\n")
	const port = "6379"
	first, second, target := netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("198.51.100.2"), c.Client.Options().Addr
	var resolver *nameserver
	var old *harness.Proxy
	network.in(t, func() {
		resolver = startResolver(t, 3*time.Second, blackHole, first)
		old = harness.StartProxyAt(t, net.JoinHostPort(first.String(), port), target, nil, nil)
		harness.StartProxyAt(t, target, target, nil, nil) // for the jobs, which ask Redis for the time
	})
	env := []string{"GODEBUG=netdns=go", "CRONCLAVE_REDIS=redis://" + net.JoinHostPort(redisName, port) + "/0"} // as in the released program, which is static
	start := func(name string, args ...string) (r *harness.Replica) {
		line := withResolver(t, harness.Program(t, harness.CronclaveProgram), append(args, "--namespace", c.Namespace)...)
		network.in(t, func() { r = harness.StartObserved(t, name, "", append(env, harness.QuickExit), line[0], line[1:]...) })
		return r
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
	lost := network.lost(t)
	if lost == 0 {
		t.Error("nothing was sent to the first address of the name")
	}

	network.in(t, func() { harness.StartProxyAt(t, net.JoinHostPort(second.String(), port), target, nil, nil) })
	asked, _ := resolver.questions()
	resolver.move(blackHole, second)
	old.Close()
	moved := harness.RedisTime(t, c.Client)
	c.AwaitRun(t, 2*time.Minute, "a", "a run at the new address", func(r harness.PastRun) bool { return r.Outcome == "ok" && r.Tick.After(moved.Add(5*time.Second)) })
	if again, v6 := resolver.questions(); again == asked || v6 == 0 || network.lost(t) == lost {
		t.Errorf("asked %d times for IPv4, %d of these before the move, and %d times for IPv6; %d packets to the first address before the move, %d in all", again, asked, v6, lost, network.lost(t))
	}
	harness.StopAll(t, replicas)
	c.CheckEachTickOnce(t, "a")
}
