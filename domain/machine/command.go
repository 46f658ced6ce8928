package machine

import (
	"time"

	"tensorturn/domain"
)

// Command is a wish to change a machine.
type Command interface{ isCommand() }

// The commands.
type (
	// Enrol makes the machine known. The edge has drawn its id, which names the aggregate too, and made its account.
	Enrol struct {
		ID      domain.MachineID
		Name    string // for people, may be empty
		NKey    string
		Account string
		Slots   int
		Token   domain.TokenID // accessor of the token that admitted it, may be empty
		At      time.Time
	}
	// Connect says that an agent process of the machine has been heard.
	Connect struct {
		Incarnation domain.Incarnation
		Slots       int // that the agent offers now; 0 leaves the number as it is
	}
	// MarkSuspect and Lose say how long the machine has been silent, in seconds.
	MarkSuspect struct{ Silent float64 }
	Lose        struct{ Silent float64 }
	// Drain lets the machine finish and leave. Stopping: the agent asks, because its process was told to end.
	Drain struct {
		Reason   string
		Stopping bool
	}
	// Resume ends a drain that is still under way, and a quarantine.
	Resume struct{}
	// MarkDrained says that a draining machine holds nothing any more.
	MarkDrained struct{}
	Revoke      struct{ Reason string }
	Quarantine  struct{ Reason string }
)

func (Enrol) isCommand()       {}
func (Connect) isCommand()     {}
func (MarkSuspect) isCommand() {}
func (Lose) isCommand()        {}
func (Drain) isCommand()       {}
func (Resume) isCommand()      {}
func (MarkDrained) isCommand() {}
func (Revoke) isCommand()      {}
func (Quarantine) isCommand()  {}
