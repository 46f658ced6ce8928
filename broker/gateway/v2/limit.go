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

// enter takes a place among the requests in work. leave gives it back.
func (a *API) enter(size int64) (leave chan struct{}, f *fail) {
	places := a.small
	if size < 0 || size > smallBody {
		places = a.large
	}
	select {
	case places <- struct{}{}:
		return places, nil
	default:
		return nil, &fail{http.StatusServiceUnavailable, fmt.Sprintf("%d requests are in work, the limit", cap(places)), retryAfter}
	}
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
