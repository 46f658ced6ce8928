// Package notify tells the service manager how the hub is: ready, stopping, a line of status, and that it is alive. It
// speaks sd_notify(3), one datagram of KEY=VALUE lines to the socket named by NOTIFY_SOCKET; without that variable it says
// nothing. The protocol is twenty lines and stable for ever, so no library is taken for it. cmd calls it.
package notify

import (
	"net"
	"strconv"
	"strings"
	"time"
)

// Notifier sends to one service manager; the zero value sends to none. Its methods do not fail: a manager that has gone away
// is not a reason to stop working.
type Notifier struct {
	socket string
	// Watchdog is how often the manager wants to hear Alive at the latest, 0 for never.
	Watchdog time.Duration
}

// FromEnvironment reads NOTIFY_SOCKET and WATCHDOG_USEC, and heeds WATCHDOG_PID.
func FromEnvironment(getenv func(string) string, pid int) Notifier {
	n := Notifier{socket: getenv("NOTIFY_SOCKET")}
	usec, err := strconv.ParseInt(getenv("WATCHDOG_USEC"), 10, 64)
	if whose := getenv("WATCHDOG_PID"); err == nil && usec > 0 && n.socket != "" && (whose == "" || whose == strconv.Itoa(pid)) {
		n.Watchdog = time.Duration(usec) * time.Microsecond
	}
	return n
}

// Ready says that the hub serves.
func (n Notifier) Ready() { n.send("READY=1") }

// Stopping says that it ends in good order.
func (n Notifier) Stopping() { n.send("STOPPING=1") }

// Alive must come within every Watchdog.
func (n Notifier) Alive() { n.send("WATCHDOG=1") }

// Status is the line that systemctl status shows.
func (n Notifier) Status(line string) {
	n.send("STATUS=" + strings.Join(strings.Fields(line), " "))
}

// send is one datagram. A name that begins with @ is in Linux' abstract space, which Go understands as it is.
func (n Notifier) send(text string) {
	if n.socket == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.Write([]byte(text))
}
