package v2

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"tensorturn/broker/inference"
	"tensorturn/domain"
	"tensorturn/domain/pool"
	"tensorturn/projections/models"
)

// rates holds the token bucket of every key that has asked.
type rates struct {
	mu    sync.RWMutex
	byKey map[domain.KeyID]*rate.Limiter
}

// allow takes a token of the caller's bucket, or says how long until there is one.
func (s *rates) allow(c Caller, now time.Time) *fail {
	perSecond := float64(c.Rate) / float64(max(c.Per, 1))
	if s.of(c, perSecond).AllowN(now, 1) {
		return nil
	}
	return &fail{http.StatusTooManyRequests, "this key may ask " + pool.RateText(c.Rate, c.Per), time.Duration(float64(time.Second) / perSecond)}
}

func (s *rates) of(c Caller, perSecond float64) *rate.Limiter {
	s.mu.RLock()
	l := s.byKey[c.Key]
	s.mu.RUnlock()
	if l != nil {
		return l
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.byKey[c.Key]; l != nil {
		return l
	}
	if s.byKey == nil || len(s.byKey) >= maxLimiters {
		s.byKey = map[domain.KeyID]*rate.Limiter{}
	}
	l = rate.NewLimiter(rate.Limit(perSecond), max(1, int(perSecond*burstSeconds)))
	s.byKey[c.Key] = l
	return l
}

// places counts the requests in work. One key never holds more of them than are left free: it gets at most half, two get a
// third each, and there is always one left for a key that has none until as many keys as places ask at once. A place is
// held while a body is on its way, so that without this one key could shut out all others by sending slowly.
type places struct {
	most int

	mu    sync.Mutex
	taken int
	byKey map[domain.KeyID]int
}

func newPlaces(most int) *places { return &places{most: most, byKey: map[domain.KeyID]int{}} }

// enter takes a place for a request of the key, or says why there is none. leave gives it back.
func (p *places) enter(k domain.KeyID) *fail {
	p.mu.Lock()
	defer p.mu.Unlock()
	free, held := p.most-p.taken, p.byKey[k]
	switch {
	case free == 0:
		return &fail{http.StatusServiceUnavailable, fmt.Sprintf("%d requests are in work, the limit", p.most), retryAfter}
	case held >= free:
		return &fail{http.StatusServiceUnavailable, fmt.Sprintf("%d requests of this key are in work, its share of %d", held, p.most), retryAfter}
	}
	p.taken++
	p.byKey[k]++
	return nil
}

func (p *places) leave(k domain.KeyID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.byKey[k]--; p.byKey[k] == 0 {
		delete(p.byKey, k)
	}
}

// enter takes a place among the requests in work with bodies of such a size. leave gives it back.
func (a *API) enter(k domain.KeyID, size int64) (leave func(), f *fail) {
	p := a.small
	if size < 0 || size > smallBody {
		p = a.large
	}
	if f := p.enter(k); f != nil {
		return nil, f
	}
	return func() { p.leave(k) }, nil
}

// versions keeps what a deployed version is made of and what goes in and out of it: a number is never used twice under one
// name.
type versions struct {
	mu   sync.RWMutex
	made map[versionKey]*made
}

type versionKey struct {
	model  domain.ModelID
	number int
}

// made is a version, and its facts once somebody has described it.
type made struct {
	version *inference.Version
	facts   atomic.Pointer[inference.Facts]
}

func (s *versions) get(t target, join func(models.Model, models.Version) (*inference.Version, error)) (*made, error) {
	k := versionKey{t.model.Name, t.version.Version}
	s.mu.RLock()
	m := s.made[k]
	s.mu.RUnlock()
	if m != nil {
		return m, nil
	}
	v, err := join(t.model, t.version)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil || len(s.made) >= maxVersions {
		s.made = map[versionKey]*made{}
	}
	m = &made{version: v}
	s.made[k] = m
	return m, nil
}
