package doctor

import (
	"context"
	"net"
	"net/url"
	"time"

	"tensorturn/broker/identity"
)

// Patient is what is examined: an agent's or a hub's folder, and what its owner wants of the machine.
type Patient struct {
	Kind Kind
	Dir  string
	Bad  error // why the keys of the folder cannot be read

	Missing bool // the folder is not there

	Hub   string // https URL, empty when none is known
	CA    []byte // PEM: the only root of the hub's certificate
	Token string // a join token to be tried, of a machine that has not joined

	// Of a machine that has joined.
	Joined     bool
	Credential string                                        // user JWT
	Proof      func(now time.Time) (token string, err error) // signs identity.AudienceSelf

	// Of a hub.
	OperatorKey string // of its own operator.json
	Start       string // the command that starts it again as it was

	MinFree     int64  // bytes its disk needs
	Interpreter string // the one that the owner names, empty: what PATH has
	WantSandbox bool
}

// pin is the CA pin of the patient's token; ok is false when there is no token that can be read.
func (p *Patient) pin() (identity.Pin, bool) {
	t, err := identity.ParseToken(p.Token)
	return t.Pin(), err == nil
}

// Probes is what the doctor looks with. Each is called from a goroutine of its own and ends with its context, or is left behind.
type Probes struct {
	Now    func() time.Time
	Lookup func(ctx context.Context, host string) ([]string, error)
	Dial   func(ctx context.Context, network, address string) (net.Conn, error)
	Proxy  func(target *url.URL) (*url.URL, error) // nil for a direct way

	Space func(dir string) (free int64, err error) // bytes that this user may still write
	Files func() (uint64, error)                   // that a process may open
	Temp  string                                   // the temporary folder

	GPUs    func(ctx context.Context) GPUs
	Python  func(ctx context.Context, wish string) Python
	Sandbox func(ctx context.Context) (holds bool, says string)
}

// GPUs is what is known of a machine's NVIDIA cards.
type GPUs struct {
	Cards   int      // on the bus, whether or not a driver is there
	Names   []string // that the driver knows
	Driver  string   // version
	CUDA    string   // the newest that the driver supports, as 12.4
	Loaded  bool     // something of a driver is there
	Silent  bool     // it does not answer
	Trouble string   // why no GPU is known
}

// Python is what is known of an interpreter and its torch.
type Python struct {
	Path      string
	Trouble   string // it is not there, or does not run
	Version   [2]int
	Torch     string // version, empty when it cannot be imported
	Import    string // why not
	CUDA      string // that torch was built for, empty for none
	Available bool   // torch sees a device
	Kernel    string // what went wrong when a device was used
	Elsewhere string // another interpreter of this machine that has torch
}
