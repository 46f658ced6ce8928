// Package sandbox keeps an owner's program within what it needs: its own folders, the devices, no network, no other
// process. It builds the command line of bubblewrap, or restricts a re-executed copy of this binary with Landlock and
// seccomp before that becomes the program; it sets the limits of a process; and it proves what it promises, by trying
// what it forbids from within. It starts nothing by itself but that proof: package process starts programs.
//
// Landlock and seccomp are spoken by hand over golang.org/x/sys: three system calls and forty instructions. go-landlock
// brings libcap's psx, which wraps pthread_create at link time, for threads that our helper does not have; go-seccomp-bpf
// lets system calls of another architecture pass (int 0x80 on amd64), which is a hole in a list of what is refused.
package sandbox

import "time"

// Backend is what holds a program.
type Backend string

// The backends, strongest first.
const (
	Bubblewrap Backend = "bubblewrap"
	Landlock   Backend = "landlock"
	None       Backend = "none"
)

// Limits of this package.
const (
	MaxPaths     = 512              // of a policy
	proofTime    = 10 * time.Second // for the proof of one backend
	maxProofText = 64 << 10         // bytes that a proof may print
	askTime      = 20 * time.Second // for an interpreter to say where it lives; a cold disk is slow
)

// Policy is what a program may do. Paths are absolute; those that do not exist are left out.
type Policy struct {
	Read    []string `json:"read,omitempty"`    // trees and files to read and execute
	Write   []string `json:"write,omitempty"`   // trees to read and write
	Devices []string `json:"devices,omitempty"` // device files to open, with ioctl
	Hide    []string `json:"hide,omitempty"`    // trees that stay hidden although they lie within Read, where the backend can
	Dir     string   `json:"dir,omitempty"`     // where the program starts
	Network bool     `json:"network,omitempty"`

	Data int64 `json:"data,omitempty"` // bytes of memory one process may allocate (RLIMIT_DATA), 0 for no limit
	File int64 `json:"file,omitempty"` // bytes of one file (RLIMIT_FSIZE), 0 for no limit
}

// HelperWord is the first argument that makes this binary the helper: see Main.
const HelperWord = "trainer-sandbox"
