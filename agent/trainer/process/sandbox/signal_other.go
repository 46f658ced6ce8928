//go:build !unix

package sandbox

import "errors"

func sendHarmless(int) error { return errors.New("there are no signals here") }

func (s *stage) watchSignal() {}
