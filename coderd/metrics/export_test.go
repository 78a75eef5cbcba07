package metrics

// DaysOf counts builds and users on the days until a given time.
var DaysOf = (*Collector).days
