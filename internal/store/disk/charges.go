package disk

import (
	"sync"

	"atys.dev/atys/internal/proc/cputime"
)

// charges has flushes and compactions of the database charged to the store. Each
// begins and ends in one goroutine, which owns its thread meanwhile.
type charges struct {
	account *cputime.Account

	mu   sync.Mutex // guards all below
	jobs map[int]func()
}

func (c *charges) begin(job int) {
	end := c.account.Begin(cputime.Store)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.jobs == nil {
		c.jobs = map[int]func(){}
	}
	c.jobs[job] = end
}

func (c *charges) end(job int) {
	c.mu.Lock()
	end := c.jobs[job]
	delete(c.jobs, job)
	c.mu.Unlock()
	if end != nil {
		end()
	}
}
