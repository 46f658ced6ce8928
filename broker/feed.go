package broker

import "context"

// FeedMessage is one event as other systems read it, with its place in the log.
type FeedMessage struct {
	Seq     uint64 // the event's sequence in the log
	ID      string // event id
	Subject string
	Data    []byte
}

// MaxFeedBytes bounds one message. It is more than any event can become: a byte of msgpack is at most six of JSON, and an
// event's data is at most domain.MaxEventBytes; the line for people adds as much again at most.
const MaxFeedBytes = 5 << 20

// Feed is where events are published for other systems. It has one publisher, which goes on behind Tail.
type Feed interface {
	// Tail is the sequence in the log and the id of the newest event published, 0 and "" when there is none.
	Tail(ctx context.Context) (seq uint64, id string, err error)
	// Mend reads the feed through, before anything is published. One that has lost or damaged messages between its ends is
	// emptied, for the publisher to fill it again with the same events at the same places; why says so, "" when it is sound.
	Mend(ctx context.Context) (why string, err error)
	// Publish stores the messages in order behind the tail that the last Tail or Publish has seen. After an error some of
	// them may be stored, the first ones first: ask Tail.
	Publish(ctx context.Context, ms []FeedMessage) error
}
