package httpspec

import (
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-scheduler/carillon/internal/kernel"
)

// notHTTP are ports of other protocols, which a job must not reach: those that browsers refuse (the Fetch standard's
// bad ports), and databases, caches and queues.
var notHTTP = []int{1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95, 101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123,
	135, 137, 139, 143, 161, 179, 389, 427, 445, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601, 636, 989, 990, 993, 995,
	1433, 1521, 1719, 1720, 1723, 2049, 3306, 3389, 3659, 4045, 4190, 4222, 5060, 5061, 5432, 5672, 6000, 6379, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697,
	10080, 11211, 27017}

// HTTPPort returns why a port is refused, or nil.
func HTTPPort(port int) error {
	switch {
	case port < 1 || port > 65535:
		return kernel.Invalid("invalid port %d: want 1 to 65535", port)
	case slices.Contains(notHTTP, port):
		return kernel.Invalid("port %d belongs to another protocol than HTTP", port)
	}
	return nil
}

// splitHost splits a host and its port; the port is "" if there is none. The brackets of an IPv6 host are removed.
func splitHost(s string) (host, port string) {
	if rest, is := strings.CutPrefix(s, "["); is {
		host, port, _ = strings.Cut(rest, "]")
		return host, strings.TrimPrefix(port, ":")
	}
	host, port, _ = strings.Cut(s, ":")
	return host, port
}

// checkHost validates a host and its port, as URLs have them.
func checkHost(s string) error {
	rest := s
	if inner, is := strings.CutPrefix(s, "["); is {
		address, after, closed := strings.Cut(inner, "]")
		if a, err := netip.ParseAddr(address); err != nil || !closed || !a.Is6() || a.Zone() != "" {
			return kernel.Invalid("invalid host %.80q: want an IPv6 address in brackets, such as [2001:db8::1]", s)
		}
		rest = "x" + after
	}
	host, port, has := strings.Cut(rest, ":")
	if !hostName.MatchString(host) {
		return kernel.Invalid("invalid host %.80q: want letters, digits, dots and hyphens", s)
	}
	if !has {
		return nil
	}
	n, err := strconv.Atoi(port)
	if err != nil || port[0] == '+' {
		return kernel.Invalid("invalid host %.80q: its port is not a number", s)
	}
	return HTTPPort(n)
}

// hostName matches a name, or an IPv4 address.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)
