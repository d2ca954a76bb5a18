package worker

// crew runs handlers on goroutines that stay for the next one: their stacks have grown by then, and growing them
// anew for each run is a fifth of what an empty run costs.
type crew struct {
	work chan func()
	idle chan struct{} // a place for each goroutine that may wait for work
	gone chan struct{} // closed when nobody need wait any longer
}

// mostIdle bounds the goroutines that wait for work.
const mostIdle = 512

func newCrew() crew {
	return crew{work: make(chan func()), idle: make(chan struct{}, mostIdle), gone: make(chan struct{})}
}

// do runs fn on a goroutine of the crew.
func (c crew) do(fn func()) {
	select {
	case c.work <- fn:
	default:
		go c.member(fn)
	}
}

// member runs fn, and then what comes, until the crew is dismissed. A handler that ends its goroutine ends this one.
func (c crew) member(fn func()) {
	for {
		fn()
		select {
		case c.idle <- struct{}{}:
		default:
			return // enough are waiting
		}
		select {
		case fn = <-c.work:
			<-c.idle
		case <-c.gone:
			return
		}
	}
}

// dismiss sends home those who wait for work, and whoever comes to wait.
func (c crew) dismiss() { close(c.gone) }
