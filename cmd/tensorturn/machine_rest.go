package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/spf13/cobra"

	"tensorturn/agent/rest"
	"tensorturn/broker/wire"
	"tensorturn/domain"
	"tensorturn/domain/machine"
	"tensorturn/projections/fleet"
)

func machineRest(a *app) *cobra.Command {
	var wish machine.Rest
	var never bool
	c := &cobra.Command{Use: "rest MACHINE", Short: "say when a machine pauses by itself: in quiet hours, while a GPU is used by other programs", Args: args("MACHINE"),
		Long: "In quiet hours, on the machine's own clock, every slot contributes what it has trained and gets no more until they are over. With --while-used\n" +
			"the slots of a GPU do so while another program uses it: after 10 s of use, until a minute without. The machine shows why it is paused.\n" +
			"It replaces what was set before; agent start --quiet-hours and --yield say the same on the machine itself, and count beside it.",
		RunE: func(c *cobra.Command, got []string) error {
			if wish.Empty() != never {
				return domain.Invalid("rest "+got[0], "nothing is said, or too much", "give --hours, --while-used, or --never alone")
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m fleet.Machine
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/machines/"+url.PathEscape(got[0])+"/rest", wish, &m); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			a.say("%s (%s) %s", m.Name, m.ID, restWord(m))
			return nil
		}}
	c.Flags().StringArrayVar(&wish.Hours, "hours", nil, "quiet hours: 08:00-18:00, \"mon-fri 08:00-18:00\", \"sat,sun 22:00-07:00\"; may be repeated")
	c.Flags().BoolVar(&wish.WhileUsed, "while-used", false, "while another program uses a GPU, for its slots")
	c.Flags().BoolVar(&never, "never", false, "end what was set")
	return c
}

func restWord(m fleet.Machine) string {
	if m.Rest == nil {
		return machine.Rest{}.String()
	}
	return m.Rest.String()
}

// restFile keeps the owner's word at the hub, so that an agent that starts in quiet hours takes no work first.
const restFile = "rest.json"

// startRest reads when this machine rests: by its flags, and by what the hub said last.
func (p *agentProcess) startRest() (err error) {
	if p.rest, err = rest.New(p.opts.rest, wallClock); err != nil {
		return domain.Invalid("start agent", "--quiet-hours: "+err.Error(), "write for example 08:00-18:00, or \"mon-fri 22:00-07:00\"")
	}
	b, err := readSmall(filepath.Join(p.opts.dir, restFile), maxRestFile)
	var kept machine.Rest // a file that breaks off has filled it in part: that was heard from nobody
	if err == nil {
		err = json.Unmarshal(b, &kept)
	}
	if err == nil {
		p.rested = kept
		p.rest.Set(kept)
	} else if !errors.Is(err, fs.ErrNotExist) {
		p.opts.logger.Warn().Err(err).Str("file", restFile).Msg("when this machine rests was damaged on its disk and is made anew by the hub's next word")
	}
	return nil // a file that is gone or damaged is made anew with the first reply
}

// hearRest takes the owner's word at the hub, and keeps it when it is another one. The agent's talker alone calls it.
func (p *agentProcess) hearRest(r machine.Rest) {
	if sameRest(r, p.rested) {
		return
	}
	p.rest.Set(r)
	p.rested = r
	b, err := json.Marshal(r)
	if err == nil {
		err = writeSmall(filepath.Join(p.opts.dir, restFile), b)
	}
	if err != nil {
		p.opts.logger.Warn().Err(err).Msg("when this machine rests was not kept")
	}
}

func sameRest(a, b machine.Rest) bool { return a.String() == b.String() }

// away says why a slot cannot or shall not work now.
func (p *agentProcess) away(slot int) *wire.Away {
	if why := p.machine.Absent(slot); why != "" {
		return &wire.Away{Cause: machine.ByAbsence, Reason: domain.Clip("its GPU is gone: "+why, wire.MaxText)}
	}
	v, _ := p.machine.Vitals()
	if cause, why := p.rest.Why(v.GPU(slot)); cause != "" {
		return &wire.Away{Cause: cause, Reason: why}
	}
	return nil
}
