//! Airports and aircraft as grains, fed with every departure of 2013 from New York.
