package holdfast

import "github.com/holdfast-go/holdfast/driver"

// signal takes what the store says by itself.
func (c *Client) signal(s driver.Signal) {
	var bye *farewell
	c.mu.Lock()
	switch s.Kind {
	case driver.GrantSignal:
		if p := c.places[s.Owner]; p != nil { // else of an attempt given up long ago
			p.tell(news{grant: s.Grant})
		}
	case driver.MissedSignal:
		for _, p := range c.places {
			if p.alarm.set {
				p.alarm.at = driver.Now()
				c.keeper.place(&p.alarm, p)
			} else {
				p.missed = true // a request is on its way; its answer may be older
			}
		}
	case driver.LostSignal:
		if h := c.holds[s.Owner]; h != nil {
			bye = c.lose(h, "the store says so", s.Reason)
		} else if p := c.places[s.Owner]; p != nil {
			p.lost = true
		}
	case driver.BrokenSignal:
		if h := c.holds[s.Owner]; h != nil {
			bye = c.revoke(h, s.Reason)
		}
	}
	if bye != nil {
		c.keep(bye.tell) // the driver's goroutine must not wait for a hook
	}
	c.mu.Unlock()
	bye.end()
}

// keep runs fn on a goroutine of the keeper's; under mu.
func (c *Client) keep(fn func()) {
	if !c.stopped {
		c.keeping.Go(fn)
	}
}
