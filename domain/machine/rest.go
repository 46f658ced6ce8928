package machine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
)

// MaxHours bounds the quiet hours of one machine.
const MaxHours = 14

// Rest says when a machine rests by itself, as its own agent sees it: by its clock and its GPUs.
type Rest struct {
	Hours []string `msgpack:"hours,omitempty" json:"hours,omitempty" doc:"quiet hours on the machine's own clock: 08:00-18:00, mon-fri 08:00-18:00, sat,sun 22:00-07:00"`
	// WhileUsed pauses the slots of a GPU while a program that is not the agent's computes on it.
	WhileUsed bool `msgpack:"used,omitempty" json:"whileUsed,omitempty" doc:"pause the slots of a GPU while another program uses it"`
}

// SetRest is the owner's wish; an empty one ends it.
type SetRest struct{ Rest Rest }

func (SetRest) isCommand() {}

// NameRestSet is the name of the fact.
const NameRestSet = "rest.set"

// RestSet means that the machine rests by itself from now on, or no more.
type RestSet struct {
	Rest Rest `msgpack:"rest"`
}

// EventName implements event.Data.
func (RestSet) EventName() string { return NameRestSet }

// Line renders the fact.
func (e RestSet) Line() string { return e.Rest.String() }

// String says it for people.
func (r Rest) String() string {
	var words []string
	if len(r.Hours) > 0 {
		words = append(words, "rests "+strings.Join(r.Hours, ", ")+" on its own clock")
	}
	if r.WhileUsed {
		words = append(words, "rests on each GPU while another program uses it")
	}
	if len(words) == 0 {
		return "rests by itself no more"
	}
	return strings.Join(words, ", and ")
}

// Empty reports whether the machine never rests by itself.
func (r Rest) Empty() bool { return len(r.Hours) == 0 && !r.WhileUsed }

func decideRest(s *State, c SetRest) ([]event.Data, error) {
	op := "set when machine " + string(s.ID) + " rests"
	if s.Standing == Revoked {
		return nil, domain.Conflict(op, "the machine is revoked", "nothing is left to rest")
	}
	if len(c.Rest.Hours) > MaxHours {
		return nil, domain.Invalid(op, fmt.Sprintf("%d quiet hours, at most %d", len(c.Rest.Hours), MaxHours), "join those that touch")
	}
	next := Rest{WhileUsed: c.Rest.WhileUsed}
	for _, text := range c.Rest.Hours {
		h, err := ParseHours(text)
		if err != nil {
			return nil, domain.Invalid(op, err.Error(), "write for example 08:00-18:00, or mon-fri 22:00-07:00")
		}
		next.Hours = append(next.Hours, h.String())
	}
	if slices.Equal(next.Hours, s.Rest.Hours) && next.WhileUsed == s.Rest.WhileUsed {
		return nil, nil
	}
	return []event.Data{&RestSet{Rest: next}}, nil
}

// Hours are quiet hours of some days of the week. Those that end before they begin go on into the next day.
type Hours struct {
	Days     [7]bool // by time.Weekday, on which they begin
	From, To int     // minutes after midnight, To up to 24:00
}

var dayNames = [7]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}

// ParseHours reads "[DAYS ]HH:MM-HH:MM", where DAYS is a list of days and of ranges of them: mon-fri, sat,sun.
func ParseHours(text string) (Hours, error) {
	bad := fmt.Errorf("%q are no quiet hours", domain.Clip(text, 40))
	words := strings.Fields(strings.ToLower(text))
	var h Hours
	switch len(words) {
	case 1:
		for i := range h.Days {
			h.Days[i] = true
		}
	case 2:
		for _, part := range strings.Split(words[0], ",") {
			first, last, ranged := strings.Cut(part, "-")
			from, to := slices.Index(dayNames[:], first), slices.Index(dayNames[:], last)
			if !ranged {
				to = from
			}
			if from < 0 || to < 0 {
				return h, bad
			}
			for d := from; ; d = (d + 1) % 7 {
				h.Days[d] = true
				if d == to {
					break
				}
			}
		}
	default:
		return h, bad
	}
	from, to, ok := strings.Cut(words[len(words)-1], "-")
	var okFrom, okTo bool
	h.From, okFrom = minutes(from)
	h.To, okTo = minutes(to)
	if !ok || !okFrom || !okTo || h.From == h.To || h.From == 24*60 {
		return h, bad
	}
	return h, nil
}

func minutes(text string) (int, bool) {
	hour, minute, ok := strings.Cut(text, ":")
	h, okH := twoDigits(hour)
	m, okM := twoDigits(minute)
	return 60*h + m, ok && okH && okM && m < 60 && 60*h+m <= 24*60
}

func twoDigits(s string) (int, bool) {
	if len(s) != 2 || s[0] < '0' || s[0] > '9' || s[1] < '0' || s[1] > '9' {
		return 0, false
	}
	return int(s[0]-'0')*10 + int(s[1]-'0'), true
}

// Quiet reports whether a moment, given as the machine's own clock shows it, is within the hours.
func (h Hours) Quiet(day time.Weekday, minute int) bool {
	if h.From < h.To {
		return h.Days[day] && minute >= h.From && minute < h.To
	}
	return h.Days[day] && minute >= h.From || h.Days[(day+6)%7] && minute < h.To
}

// String writes them as ParseHours reads them.
func (h Hours) String() string {
	clock := fmt.Sprintf("%02d:%02d-%02d:%02d", h.From/60, h.From%60, h.To/60, h.To%60)
	if h.Days == [7]bool{true, true, true, true, true, true, true} {
		return clock
	}
	var parts []string
	for i := 0; i < 7; i++ { // weeks begin on monday
		d := (i + 1) % 7
		if !h.Days[d] {
			continue
		}
		last := i
		for last+1 < 7 && h.Days[(last+2)%7] {
			last++
		}
		if last-i >= 2 {
			parts, i = append(parts, dayNames[d]+"-"+dayNames[(last+1)%7]), last
			continue
		}
		parts = append(parts, dayNames[d])
	}
	return strings.Join(parts, ",") + " " + clock
}
