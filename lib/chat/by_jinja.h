// Conversations by a template that is Jinja. Each throws Error (74) for what the template refuses.
#pragma once
#include <string>
#include <vector>

#include "chat/chat.h"

namespace neox {

// As render_chat().
std::vector<ChatTurn> render_by_jinja(const Chat& chat, const ChatTemplate& style,
                                      const std::string& generation_role, Apart apart);

// add_generation_prompt of transformers.
enum class Prompt { kNone, kGeneration };
std::string text_by_jinja(const Chat& chat, const ChatTemplate& style, Prompt prompt);

// Whether it writes the text of a content that is a list with a part of the type text: others write
// such a list as Python does, or fail.
bool writes_parts(const ChatTemplate& style);

// Whether the text of a conversation with tools is another than without.
bool writes_tools(const ChatTemplate& style);

// As end_of_reply().
std::string end_by_jinja(const ChatTemplate& style);

}  // namespace neox
