package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"tensorturn/broker/gateway"
	"tensorturn/domain"
	"tensorturn/projections/fleet"
)

// labelList collects labels, key=value each. It is a flag's value.
type labelList map[string]string

func (l *labelList) String() string { return domain.LabelText(*l) }

// Type names the kind of value in help texts.
func (*labelList) Type() string { return "key=value" }

// Set takes one label, or several with commas between them.
func (l *labelList) Set(text string) error {
	next := maps.Clone(*l)
	if next == nil {
		next = labelList{}
	}
	for word := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("%q is no label: write key=value", domain.Clip(word, domain.MaxNameLength))
		}
		next[key] = value
	}
	if err := domain.CheckLabels("label", "the list", next); err != nil {
		return err
	}
	*l = next
	return nil
}

func machineLabel(a *app) *cobra.Command {
	return &cobra.Command{Use: "label MACHINE KEY=VALUE... | KEY-...", Short: "give a machine labels for requirements of runs; KEY- removes one", Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, got []string) error {
			wish := gateway.LabelRequest{Set: map[string]string{}}
			for _, word := range got[1:] {
				key, value, sets := strings.Cut(word, "=")
				if key, removes := strings.CutSuffix(word, "-"); removes && !sets {
					wish.Remove = append(wish.Remove, key)
					continue
				}
				if !sets {
					return domain.Invalid("label "+got[0], fmt.Sprintf("%q is no label", domain.Clip(word, domain.MaxNameLength)), "write KEY=VALUE, or KEY- to remove one")
				}
				wish.Set[key] = value
			}
			cl, err := a.client()
			if err != nil {
				return err
			}
			var m fleet.Machine
			if err := cl.call(c.Context(), http.MethodPost, "/api/v1/machines/"+url.PathEscape(got[0])+"/label", wish, &m); err != nil {
				return err
			}
			if a.json {
				return a.object(m)
			}
			a.say("%s (%s): %s", m.Name, m.ID, cmpOr(domain.LabelText(m.Labels), "no labels"))
			return nil
		}}
}
