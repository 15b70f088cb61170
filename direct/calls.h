// How a call that the library stands in front of begins and ends.
#ifndef MILLRACE_DIRECT_CALLS_H
#define MILLRACE_DIRECT_CALLS_H

#include "internal.h"

// The connection that the descriptor is, or NULL. Leave it with mr_leave.
struct mr_connection *mr_begin(int fd);
bool mr_is_direct(struct mr_connection *connection);
void mr_pin_set_or_connection(int fd);

#endif
