// Package dispatch lets agents answer for deployed models: it tells each machine which models to hold, hears which are ready,
// and carries requests to them over NATS, behind NAT as they are: to the least loaded first, once more to another when one
// fails, and to a second one at once when the first is slower than it mostly is. An ensemble's members are asked all at a time,
// and those that answer in time vote.
//
// It decides nothing that is in the log and remembers nothing over a restart: what is deployed comes from the log, who holds it from
// the machines. Which machine holds what is domain/placement's. It believes no answer: only the account that was asked can
// answer a question, and what it says is checked like any foreign bytes. broker/hub calls Exchange with each sync,
// broker/gateway asks for predictions. DESIGN.md has the path of one request.
package dispatch

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"tensorturn/broker/inference"
	"tensorturn/domain"
)

// Limits of the dispatcher.
const (
	answerTime  = 20 * time.Second // of a request; a model that needs longer has too many rows in it
	memberTime  = 2 * time.Second  // an ensemble waits no shorter for its slow members, once another has answered
	memberTimes = 8                // and as many times as long as nineteen of twenty of their answers take
	hedgeFirst  = time.Second      // until a model's answers are known
	hedgeLeast  = 20 * time.Millisecond
	hedgeMost   = 5 * time.Second
	hedgeShare  = 0.1              // of all questions are asked twice, no more: slowness everywhere must not double the load
	hedgeSaved  = 10.0             // questions that may be asked twice before any share was saved up
	loadWait    = 15 * time.Second // a request waits for a machine to have its model ready, if there is one
	checkWait   = 2 * time.Minute  // a deployment does
	wishTime    = 10 * time.Minute // a version that is asked for by its number, or about to be deployed, is held for
	failedTime  = time.Minute      // a machine that could not load a model is not given it again before
	planEvery   = time.Second      // at most this often the pool is looked at anew without news
	maxWishes   = 64
	maxOpen     = 4096 // questions that wait for answers
	maxFacts    = 512
	latencies   = 64 // answers of a model that are remembered
	fewAnswers  = 8  // with less than this many the model's speed is not known
)

// Machine is a machine that could hold models.
type Machine struct {
	ID      domain.MachineID
	Account string
	Leaving bool // it drains, or is kept from work
}

// Sender carries questions to machines.
type Sender interface {
	// Send hands on an encoded wire.Ask. An error means that it did not leave.
	Send(account string, id uint64, ask []byte) error
}

// Config is what a Dispatcher stands on. All of it is needed.
type Config struct {
	Sender Sender
	// Machines lists the pool's machines that are not revoked, in the order of their ids.
	Machines func() []Machine
	// Deployed lists the versions that answer now, on agents, in a fixed order.
	Deployed func() []*inference.Version
	// Facts says what goes into a version and comes out of it.
	Facts func(context.Context, *inference.Version) (inference.Facts, error)
	// Wake hints to a machine that it should sync now. It must not call back.
	Wake   func(domain.MachineID)
	Silent time.Duration // a machine that was not heard for this long is not counted on
	Now    func() time.Time
	Logger zerolog.Logger
}

var _ inference.Backend = (*Dispatcher)(nil)
