package models_test

import (
	"testing"
	"time"

	"tensorturn/domain"
	"tensorturn/domain/event"
	"tensorturn/domain/pool"
	"tensorturn/projections/models"
)

func TestVersionsFollowTheFacts(t *testing.T) {
	v := models.New()
	apply := func(d event.Data) {
		v.Apply(event.Envelope{Kind: event.KindPool, Agg: pool.ID, Time: time.Unix(1e9, 0), Data: d})
	}
	deploy := func(name domain.ModelID, version int) {
		apply(&pool.ModelDeployed{Model: name, Version: version, Run: "r-1", Where: pool.WhereHub})
	}
	deploy("zebra", 1)
	for i := range pool.MaxVersions + 2 {
		deploy("digits", i+1)
	}
	m, ok := v.Get("digits")
	if !ok || m.Serving != pool.MaxVersions+2 || len(m.Versions) != pool.MaxVersions || m.Versions[0].Version != 3 {
		t.Fatalf("%v %+v", ok, m)
	}
	held := m.Versions
	apply(&pool.ModelRolledBack{Model: "digits", From: 10, To: 4})
	deploy("digits", 11)
	if held[0].Version != 3 || len(held) != pool.MaxVersions {
		t.Error("a list that was given out has changed")
	}
	m, _ = v.Get("digits")
	if x, ok := m.Find(0); !ok || x.Version != 11 {
		t.Errorf("the one that answers is %+v", x)
	}
	if x, ok := m.Find(5); !ok || x.Version != 5 {
		t.Errorf("an older one is %+v", x)
	}
	if _, ok := m.Find(3); ok {
		t.Error("a forgotten version is found")
	}
	apply(&pool.ModelRetired{Model: "digits"})
	apply(&pool.ModelRetired{Model: "nobody"})
	if l := v.List(); len(l) != 2 || l[0].Name != "digits" || !l[0].Retired || l[1].Retired {
		t.Errorf("%+v", l)
	}
	deploy("digits", 12)
	if m, _ = v.Get("digits"); m.Retired || m.Serving != 12 {
		t.Errorf("deployed again: %+v", m)
	}
}
