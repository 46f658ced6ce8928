package wire

// Names of the event feed as an observer's account sees it. The consumer of an observer is named by its account, so that
// the account token in the subject binds each to its own (measured: nobody reaches another's).
const (
	FeedStream = "FEED"
	// FeedAPI is the API prefix that an observer's client is given. Under JetStream's own prefix the account's system import
	// would shadow the hub's.
	FeedAPI = "feed.API"

	feedNext, feedInfo, feedAck = "$JS.API.CONSUMER.MSG.NEXT.FEED.", "$JS.API.CONSUMER.INFO.FEED.", "$JS.ACK.FEED."
	localNext, localInfo        = FeedAPI + ".CONSUMER.MSG.NEXT.FEED.", FeedAPI + ".CONSUMER.INFO.FEED."
)

// FeedService is one service that the hub's account exports to observers and one of them imports.
type FeedService struct {
	Name     string
	Export   string // with '*' for the account
	Token    uint   // place of the account in Export, counted from 1
	Subject  string // of one account
	Local    string // as the observer says it
	Streamed bool   // more than one answer comes to a request
}

// FeedServices lists what the observer with this account may ask: the next messages of its consumer, what the consumer is,
// and to acknowledge its own messages. Nothing else of JetStream is within its reach.
func FeedServices(account string) []FeedService {
	return []FeedService{
		{Name: "feed next", Export: feedNext + "*", Token: 7, Subject: feedNext + account, Local: localNext + account, Streamed: true},
		{Name: "feed info", Export: feedInfo + "*", Token: 6, Subject: feedInfo + account, Local: localInfo + account},
		{Name: "feed ack", Export: feedAck + "*.>", Token: 4, Subject: feedAck + account + ".>", Local: feedAck + account + ".>"},
	}
}
