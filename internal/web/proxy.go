package web

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// believeProxies replaces the address of requests from trusted proxies by the address of the client in X-Forwarded-For.
func believeProxies(next http.Handler, trusted []netip.Prefix) http.Handler {
	if len(trusted) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if client := clientOf(r, trusted); client.IsValid() {
			behind := *r
			behind.RemoteAddr = netip.AddrPortFrom(client, 0).String()
			r = &behind
			doorOf(r).setClient(client)
		}
		next.ServeHTTP(w, r)
	})
}

// clientOf returns the last address in X-Forwarded-For that is not a trusted proxy. The entries before that address may be forged. The result is invalid if
// the request does not come from a trusted proxy, or if the header names no client.
func clientOf(r *http.Request, trusted []netip.Prefix) (client netip.Addr) {
	if !isTrusted(trusted, addressOf(r.RemoteAddr)) {
		return netip.Addr{}
	}
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		at := addressOf(strings.TrimSpace(hop))
		if !at.IsValid() {
			break
		}
		if client = at; !isTrusted(trusted, at) {
			break
		}
	}
	return client
}

// addressOf parses an IP address with or without a port.
func addressOf(text string) netip.Addr {
	if host, _, err := net.SplitHostPort(text); err == nil {
		text = host
	}
	at, _ := netip.ParseAddr(strings.Trim(text, "[]")) // an invalid address if text is not an address
	return at.Unmap().WithZone("")
}

func isTrusted(trusted []netip.Prefix, at netip.Addr) bool {
	return slices.ContainsFunc(trusted, func(p netip.Prefix) bool { return p.Contains(at) })
}

// countedAddress returns the address by which a client is counted. For IPv6 it is the client's /64 network, because a client can use every address in it.
func countedAddress(at netip.Addr) netip.Addr {
	if at.Is6() && !at.Is4In6() {
		network, _ := at.Prefix(64) // no error: 64 is a valid length
		return network.Addr()
	}
	return at
}
