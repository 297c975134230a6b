// Conversations by a template that is Jinja. Each throws Error (74) for what the template refuses.
#pragma once
#include <string>
#include <vector>

#include "chat/chat.h"

namespace neox {

// As render_chat().
std::vector<ChatTurn> render_by_jinja(const std::vector<ChatMessage>& messages,
                                      const ChatTemplate& style, const std::string& generation_role,
                                      Apart apart);

// add_generation_prompt of transformers.
enum class Prompt { kNone, kGeneration };
std::string text_by_jinja(const std::vector<ChatMessage>& messages, const ChatTemplate& style,
                          Prompt prompt);

// As end_of_reply().
std::string end_by_jinja(const ChatTemplate& style);

}  // namespace neox
