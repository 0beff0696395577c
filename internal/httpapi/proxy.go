package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// believeProxies gives requests the address of the client that a trusted proxy names, in place of the proxy's own.
func believeProxies(next http.Handler, trusted []netip.Prefix) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := clientOf(r, trusted); client.IsValid() {
			behind := *r
			behind.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			r = &behind
			doorOf(r).serve(client)
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the last address of X-Forwarded-For that is no trusted proxy: everything before it is the word of a stranger. It is not valid if the
// request comes from no trusted proxy, or if the proxy names no client.
func clientOf(r *http.Request, trusted []netip.Prefix) (client netip.Addr) {
	if !trusts(trusted, addressOf(r.RemoteAddr)) {
		return netip.Addr{}
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		at := addressOf(strings.TrimSpace(hop))
		if !at.IsValid() {
			break
		}
		if client = at; !trusts(trusted, at) {
			break
		}
	}
	return client
}

// addressOf reads an IP address with or without a port.
func addressOf(text string) netip.Addr {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	at, _ := netip.ParseAddr(strings.Trim(text, "[]")) // an address that is not valid otherwise
	return at.Unmap().WithZone("")
}

func trusts(trusted []netip.Prefix, at netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(at) })
}

// neighbourhood is the address by which a client is counted. One that has an IPv6 address has all of its network.
func neighbourhood(at netip.Addr) netip.Addr {
	if at.Is6() && !at.Is4In6() {
		network, _ := at.Prefix(64) // 64 is a valid length
		return network.Addr()
	}
	return at
}
